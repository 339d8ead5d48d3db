"""The transfer of new weights from a learner to engines."""
