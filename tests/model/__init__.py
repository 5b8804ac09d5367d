"""Every number that info prints, held against a model of plain Python."""
