"""Operators of truefuse inside other libraries' models."""
