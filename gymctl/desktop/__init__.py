"""A desktop's actions, where they point, and the page that shows it to a person."""
