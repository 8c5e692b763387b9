"""Generates the embedded shop: families of similar products, and requests for them."""

from agentgym_flow.envs.webshop.generator.shop import GeneratedShop, shop

__all__ = ["GeneratedShop", "shop"]
