"""What everything runs on: kernels, files, threads, progress."""
