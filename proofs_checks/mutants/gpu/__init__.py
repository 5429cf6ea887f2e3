"""Wrong kernels: `fastimpl` with one edit of its text, judged as a port on a device."""
