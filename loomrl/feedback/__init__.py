"""What becomes of feedback: who gives it from elsewhere, and what is learnt from it."""
