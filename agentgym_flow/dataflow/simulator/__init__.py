"""How long a dataflow takes, in virtual time, with the real ledger."""
