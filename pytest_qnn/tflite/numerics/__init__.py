"""What a graph computes, and how far a target may be off."""
