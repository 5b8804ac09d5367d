"""Writers that are killed while others go on, and system calls that kill or fail: what is left."""
