"""WebShop: buying what an instruction asks for. Catalogues, goals, pages, scores, and the environment over them."""
