"""Recipes, plans, run folders, claims: what turns a config into checked numbers."""
