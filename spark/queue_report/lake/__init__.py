"""The lake: tables in Parquet, and the manifests that list their files."""
