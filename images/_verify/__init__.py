"""The check language that all environment servers share; see README.md."""
