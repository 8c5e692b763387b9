"""What a run did: metrics, traces and their pictures."""
