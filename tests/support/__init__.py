"""Helpers of the tests: enumeration by brute force, plain reference code, logs to test on."""
