"""What agent frameworks want, made of an Engine.

tools       a tool function for the OpenAI and Anthropic interfaces: schema and dispatcher
langchain   a LangChain or LangGraph tool
smolagents  a PythonExecutor for smolagents' CodeAgent
executor    SessionExecutor: one asynchronous execute() that returns a dict
"""
