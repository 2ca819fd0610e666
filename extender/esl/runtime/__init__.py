"""What runs a policy for applications, and the base that most of them share."""
