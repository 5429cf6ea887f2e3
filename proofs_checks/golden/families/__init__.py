"""Golden cases beyond the judge's own: small inputs where real faults were."""
