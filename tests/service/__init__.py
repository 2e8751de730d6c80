"""The HTTP service and the ad lab."""
