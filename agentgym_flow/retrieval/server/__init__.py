"""A server of Search-R1's `POST /retrieve` over any of our retrievers. It needs the extra `serve`."""
