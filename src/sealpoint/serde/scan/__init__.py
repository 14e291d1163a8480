"""The check that unauthenticated bytes pass before they are decoded."""
