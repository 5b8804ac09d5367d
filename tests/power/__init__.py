"""Power cuts on real file systems, and a disk whose syncs really fail; they need root."""
