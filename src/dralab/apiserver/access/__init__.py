"""Who may do what: users, roles, admission, audit and fairness."""
