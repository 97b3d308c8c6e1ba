-- The image creates the database tracewise; MLflow has its own.
CREATE DATABASE mlflow;
