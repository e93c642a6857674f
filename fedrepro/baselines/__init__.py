"""Methods that several papers compare with, each from its own paper."""
