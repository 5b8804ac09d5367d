"""What a crash may leave: kills, cuts at every operation, full disks, torn tails."""
