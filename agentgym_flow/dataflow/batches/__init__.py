"""What the trainer's batches are made of: committed groups, curricula, operators, replay."""
