"""The inputs that ports are judged on, one file per family of stages."""
