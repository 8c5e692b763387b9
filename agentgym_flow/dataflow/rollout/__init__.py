"""Workers: lease episodes, play them with the weights that they name, commit them."""
