"""Workers lease episodes, play them with the weights of their leases, and commit them."""
