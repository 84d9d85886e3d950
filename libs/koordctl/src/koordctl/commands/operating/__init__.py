"""Commands that install, secure and keep an installation outside of the embedded stack."""
