"""What several log formats share."""
