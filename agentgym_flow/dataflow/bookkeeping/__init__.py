"""What became of every slot: the ledger, its journal, and the manager that keeps both."""
