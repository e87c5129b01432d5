"""What every command reports in: measures with mean and spread, results files, tables, times."""
