"""Speculation: guess the next tokens with the MTP layer, keep the guesses that the model itself would have made."""
