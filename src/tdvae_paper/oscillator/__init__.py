"""The noisy harmonic oscillator (paper, section "Noisy harmonic oscillator", Fig. 4) and ablations of its preset."""
