"""The app that every limiter protects, in Starlette and in FastAPI."""
