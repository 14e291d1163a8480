"""What a release is built and checked with; RELEASING.md says how. No part of the package."""
