"""What members may do, as an operator writes it down and as it is enforced. Everything here is pure.

patterns    services, targets, labels and members: what each text means
statements  Datalog that an operator writes
model       roles, bindings, a policy, and what it allows
document    a policy as JSON or YAML has it, read strictly
compile     a policy as facts for credentials, and as rules for whoever serves a call
"""
