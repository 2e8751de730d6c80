"""The foundation of all packages: kernels, files, threads, progress."""
