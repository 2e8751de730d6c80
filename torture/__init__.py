"""Attacks on Reclick: damaged inputs, kills, full disks, forged folders and races."""
