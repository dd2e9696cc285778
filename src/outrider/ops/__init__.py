"""Operations of the model: number formats, plain-torch references and kernels."""
