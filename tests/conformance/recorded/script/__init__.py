"""What is asked: `whole.SCRIPT`, of the modules beside it, one for each subject."""
