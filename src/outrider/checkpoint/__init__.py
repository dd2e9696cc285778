"""Official checkpoints: tensor names and formats, validation, reading and writing."""
