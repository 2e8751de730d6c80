"""Attacks on Reclick: damaged inputs, kills, full disks, forged folders, rivals. `make torture`."""
