"""Simulate dataflows in virtual time, with the real ledger."""
