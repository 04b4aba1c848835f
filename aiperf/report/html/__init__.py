"""The HTML page of a run: view model, charts as inline SVG, template, style and script."""
