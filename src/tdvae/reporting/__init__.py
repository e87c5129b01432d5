"""Reporting: measures with mean and spread, results files, tables."""
