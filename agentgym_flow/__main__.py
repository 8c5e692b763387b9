"""`python -m agentgym_flow` runs the command `agentgym-flow`."""

from agentgym_flow.cli import main

if __name__ == "__main__":
    main()
