"""The generated shop: tables of words, families of products that look alike, and what people ask for."""

from agentgym_flow.envs.webshop.generator.shop import GeneratedShop, shop

__all__ = ["GeneratedShop", "shop"]
