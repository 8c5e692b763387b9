"""The state of every slot: the ledger, its journal, and the manager."""
